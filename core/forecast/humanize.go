package forecast

import (
	"fmt"
	"math"
	"strings"
)

// size writes bytes for people: GB (10^9) with two decimals, amounts under 1 GB as MB or kB.
func size(bytes float64) string {
	switch {
	case bytes >= 1e9:
		return fmt.Sprintf("%.2f GB", bytes/1e9)
	case bytes >= 1e7:
		return fmt.Sprintf("%.0f MB", bytes/1e6)
	case bytes >= 1e5:
		return fmt.Sprintf("%.1f MB", bytes/1e6)
	}
	return fmt.Sprintf("%.0f kB", bytes/1e3)
}

// lasting writes seconds for people.
func lasting(seconds float64) string {
	switch {
	case !(seconds < 1e9):
		return "a long time"
	case seconds < 90:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 90*60:
		return fmt.Sprintf("%.0f min", seconds/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%.1f h", seconds/3600)
	}
	return fmt.Sprintf("%.0f days", seconds/86400)
}

// left writes how many steps and how much time are left.
func left(steps, seconds float64) string {
	if steps < 0.5 {
		return "at any moment"
	}
	if math.IsNaN(seconds) {
		return fmt.Sprintf("in about %s", counted(steps, "step"))
	}
	return fmt.Sprintf("in about %s (%s)", counted(steps, "step"), lasting(seconds))
}

func counted(n float64, noun string) string {
	if n = math.Round(n); n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return fmt.Sprintf("%.0f %ss", n, noun)
}
