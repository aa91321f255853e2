"""Tasks whose samples are computed: addition and copying."""
