package trace

// Unpack is for tests of its bound.
var Unpack = unpack
