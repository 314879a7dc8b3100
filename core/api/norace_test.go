//go:build !race

package api

// slowdown: without the race detector requests take as long as they take.
const slowdown = 1
