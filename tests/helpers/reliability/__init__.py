"""What the tests of reliability share: a server's process, loads and their oracle, faults, floods, and figures."""
