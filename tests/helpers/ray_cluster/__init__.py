"""Ray on this machine: with the application of `translane_server.ray_serve`, and with further nodes."""
