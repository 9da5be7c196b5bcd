"""HTTP: the calls of the gRPC port as JSON, a page that translates, and the page of the metrics."""
