//go:build race

package api

// slowdown is by how much the race detector slows a request down, at most, beside other work on the machine.
const slowdown = 10
