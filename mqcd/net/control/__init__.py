"""Both ends of the control socket, and connections that its processes lend one another."""
