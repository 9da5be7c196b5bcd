"""What all rooms of the exporter stand on: checkpoints, settings, files and errors."""
