//go:build !race

package monitor

const underRace = false
