package detect

const nonblock = 0
