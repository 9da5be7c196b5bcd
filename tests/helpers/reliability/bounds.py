"""What a server must keep to while it is attacked. The bounds leave room for a busy machine; figures tell the rest."""

# The longest time without an answer that a bystander may see [seconds].
GAP = 5.0

# The longest time that an honest call takes beside any other load [seconds].
HONEST_CALL = 5.0

# The longest time that a call may wait for its message [seconds].
MESSAGE_TIME = 60.0

# The most that the memory of the process that takes requests may grow under a flood [MiB].
MEMORY_GROWTH = 300.0

# The most calls of one connection that may wait for their message.
OPEN_STREAMS = 1024

# The longest time until the server closes the connection of a client that has vanished [seconds].
VANISHED = 180.0

# The longest time until a lost or hung replica is replaced [seconds].
RECOVERY = 20.0

# The longest time until a hostile request is refused, on a busy machine [seconds].
REFUSAL = 5.0
