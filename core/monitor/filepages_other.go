//go:build !linux

package monitor

// releaseFilePages does nothing on this system.
func releaseFilePages() {}
