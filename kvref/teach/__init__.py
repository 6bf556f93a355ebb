"""The course for a class: prove its exercises, hand them out, and grade what comes back."""
