//go:build race

package monitor

const underRace = true // everything takes ten times as long
