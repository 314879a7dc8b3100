// Package units writes figures for people: sizes, durations, shares, and lists that stay short.
// Sizes are binary: 1 GiB is 2³⁰ bytes. GB, which are 10⁹ bytes, stand only in the names of cards
// and in the thresholds of published rules.
package units

import (
	"fmt"
	"math"
	"strings"
)

// KiB, MiB and GiB are in bytes.
const (
	KiB = 1 << 10
	MiB = 1 << 20
	GiB = 1 << 30
)

// Size is "12.41 GiB", "3.0 MiB", "1.0 KiB", "48 B".
func Size(bytes float64) string {
	switch {
	case math.Abs(bytes) >= 0.095*GiB:
		return fmt.Sprintf("%.2f GiB", bytes/GiB)
	case math.Abs(bytes) >= 0.095*MiB:
		return fmt.Sprintf("%.1f MiB", bytes/MiB)
	case math.Abs(bytes) >= 0.095*KiB:
		return fmt.Sprintf("%.1f KiB", bytes/KiB)
	}
	return fmt.Sprintf("%.0f B", bytes)
}

// Rate is "60 MB/s", "0".
func Rate(bytesPerSecond float64) string {
	switch {
	case bytesPerSecond < 500:
		return "0"
	case bytesPerSecond >= 9.5e5:
		return fmt.Sprintf("%.0f MB/s", bytesPerSecond/1e6)
	}
	return fmt.Sprintf("%.0f kB/s", bytesPerSecond/1e3)
}

// Duration is "850 ms", "42 s", "12.5 min", "3 h 20 min", "2 d 4 h".
func Duration(seconds float64) string {
	switch {
	case seconds < 1:
		return fmt.Sprintf("%.0f ms", 1000*seconds)
	case seconds < 99.5:
		return fmt.Sprintf("%.3g s", seconds)
	case seconds < 5970:
		return fmt.Sprintf("%.3g min", seconds/60)
	}
	if minutes := int64(math.RoundToEven(seconds / 60)); minutes < 48*60 {
		return fmt.Sprintf("%d h %d min", minutes/60, minutes%60)
	}
	hours := int64(math.RoundToEven(seconds / 3600))
	return fmt.Sprintf("%d d %d h", hours/24, hours%24)
}

// About is a duration that was estimated: "42 s", "12 min", "3.3 h", "2 days"; "a long time" where
// it has no end.
func About(seconds float64) string {
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

// Percent is "87 %", small shares with a digit more; "not known" of NaN.
func Percent(share float64) string {
	switch {
	case math.IsNaN(share) || math.IsInf(share, 0):
		return "not known"
	case share >= 0.1 || share == 0:
		return fmt.Sprintf("%.0f %%", 100*share)
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// Listed is the first items and how many more there are: "a, b and 3 more".
func Listed(items []string, separator string, limit int) string {
	text := strings.Join(items[:min(limit, len(items))], separator)
	if more := len(items) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
