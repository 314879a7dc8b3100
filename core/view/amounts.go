package view

import (
	"fmt"
	"math"
	"time"

	"github.com/asrconfig/asrconfig-go/core/units"
)

const unknown = "–"

// known returns the text of a figure, a dash where it is not known.
func known[T any](figure *T, text func(T) string) string {
	if figure == nil {
		return unknown
	}
	return text(*figure)
}

// size is "20.1 GiB", "640 MiB", "0".
func size(bytes float64) string {
	switch {
	case math.Abs(bytes) < units.MiB/2:
		return "0"
	case math.Abs(bytes) >= 0.95*units.GiB:
		return units.InGiB(bytes)
	}
	return fmt.Sprintf("%.0f MiB", bytes/units.MiB)
}

// part is "11.9 of 15.0 GiB", a small part in MiB.
func part(bytes, total float64) string {
	if bytes < 0.095*units.GiB {
		return fmt.Sprintf("%.0f MiB of %s", bytes/units.MiB, units.InGiB(total))
	}
	return fmt.Sprintf("%.1f of %s", bytes/units.GiB, units.InGiB(total))
}

// intoRun is "0:07:31", "2 d 03:10:00": seconds from the run's start.
func intoRun(seconds float64) string {
	rounded := int64(math.RoundToEven(seconds))
	days, remainder := rounded/86400, rounded%86400
	if days > 0 {
		return fmt.Sprintf("%d d %02d:%02d:%02d", days, remainder/3600, remainder/60%60,
			remainder%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", remainder/3600, remainder/60%60, remainder%60)
}

// clock is "2026-11-22 14:20:05" by this machine's clock.
func clock(unix float64) string {
	return time.Unix(int64(unix), 0).Format("2006-01-02 15:04:05")
}

// short has three digits that count, or all of a larger number.
func short(x float64) string { return digits("%.3g", x) }

// rough has two digits that count, or all of a larger number.
func rough(x float64) string { return digits("%.2g", x) }

func digits(format string, x float64) string {
	if math.Abs(x) >= 99.5 {
		format = "%.0f"
	}
	return fmt.Sprintf(format, x)
}

// amount returns figures of one unit: "61 W".
func amount(unit string) func(float64) string {
	return func(x float64) string { return short(x) + " " + unit }
}

// energy is "35 Wh", "9.7 kWh".
func energy(wattHours float64) string {
	if wattHours < 1000 {
		return short(wattHours) + " Wh"
	}
	return short(wattHours/1000) + " kWh"
}

// count is "1 clip", "2 clips".
func count(n int, noun string) string { return counted(n, noun, noun+"s") }

// counted is count with a plural of its own: "2 likely copies".
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// epochs is "1 epoch", "2.5 epochs".
func epochs(n float64) string {
	if n == 1 {
		return "1 epoch"
	}
	return fmt.Sprintf("%.6g epochs", n)
}

// roundStep is 1, 2 or 5 times a power of ten, so that a few marks fit below top; without a usable
// top one mark does.
func roundStep(top float64) float64 {
	if !(top > 1e-100 && top < 1e100) {
		return max(1, 2*top)
	}
	power := math.Pow(10, math.Floor(math.Log10(top/3)))
	step := power
	for _, n := range []float64{2, 5} {
		if power*n <= top/3 {
			step = power * n
		}
	}
	return step
}
