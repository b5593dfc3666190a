package sandbox

const defaultShell = "cmd.exe"
