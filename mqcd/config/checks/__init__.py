"""What is checked of settings as a whole, once each value is read. Pure."""
