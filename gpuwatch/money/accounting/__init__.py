"""What each machine cost, hour by hour, and what the hours were used for."""
