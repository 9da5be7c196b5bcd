"""Search, sampling and constraints: functions on arrays, without model and clock."""
