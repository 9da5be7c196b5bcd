"""HTTP: the calls of the gRPC port as JSON, the status page, and the page of the metrics."""
