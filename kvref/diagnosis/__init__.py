"""What a failing decoder looks like: its answers to a few fixed schedules, compared with those of every known bug."""
