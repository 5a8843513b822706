"""What the processes of several shards share: connections and their limits, and the rates they have used."""
