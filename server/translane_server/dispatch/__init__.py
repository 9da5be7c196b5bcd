"""The server's side of the replicas: distributes sentences, and starts the replicas' processes."""
