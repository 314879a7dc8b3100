package view

import (
	"fmt"
	"math"
	"time"
)

// Sizes that people read are binary: 1 GiB is 2³⁰ bytes.
const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

const unknown = "–"

// known gives the text of a figure, a dash where it is not known.
func known[T any](figure *T, text func(T) string) string {
	if figure == nil {
		return unknown
	}
	return text(*figure)
}

// orZero is the figure, 0 where it is not known.
func orZero(figure *float64) float64 {
	if figure == nil {
		return 0
	}
	return *figure
}

// inGiB is "15.0 GiB".
func inGiB(bytes float64) string { return fmt.Sprintf("%.1f GiB", bytes/gib) }

// size is "20.1 GiB", "640 MiB", "0".
func size(bytes float64) string {
	switch {
	case math.Abs(bytes) < mib/2:
		return "0"
	case math.Abs(bytes) >= 0.95*gib:
		return inGiB(bytes)
	}
	return fmt.Sprintf("%.0f MiB", bytes/mib)
}

// exact is "12.41 GiB", "3.0 MiB", "1.0 KiB".
func exact(bytes float64) string {
	switch {
	case math.Abs(bytes) >= 0.095*gib:
		return fmt.Sprintf("%.2f GiB", bytes/gib)
	case math.Abs(bytes) >= 0.095*mib:
		return fmt.Sprintf("%.1f MiB", bytes/mib)
	}
	return fmt.Sprintf("%.1f KiB", bytes/kib)
}

// part is "11.9 of 15.0 GiB", a small part in MiB.
func part(bytes, whole float64) string {
	if bytes < 0.095*gib {
		return fmt.Sprintf("%.0f MiB of %s", bytes/mib, inGiB(whole))
	}
	return fmt.Sprintf("%.1f of %s", bytes/gib, inGiB(whole))
}

// rate is "60 MB/s", "0".
func rate(bytesPerSecond float64) string {
	switch {
	case bytesPerSecond < 500:
		return "0"
	case bytesPerSecond >= 9.5e5:
		return fmt.Sprintf("%.0f MB/s", bytesPerSecond/1e6)
	}
	return fmt.Sprintf("%.0f kB/s", bytesPerSecond/1e3)
}

// lasting is "850 ms", "42 s", "12.5 min", "3 h 20 min", "2 d 4 h".
func lasting(seconds float64) string {
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

// intoRun is "0:07:31", "2 d 03:10:00": seconds from the run's start.
func intoRun(seconds float64) string {
	whole := int64(math.RoundToEven(seconds))
	days, rest := whole/86400, whole%86400
	if days > 0 {
		return fmt.Sprintf("%d d %02d:%02d:%02d", days, rest/3600, rest/60%60, rest%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", rest/3600, rest/60%60, rest%60)
}

// clock is "2026-11-22 14:20:05" by this machine's clock.
func clock(unix float64) string {
	return time.Unix(int64(unix), 0).Format("2006-01-02 15:04:05")
}

// percent is "87 %", small shares with a digit more.
func percent(share float64) string {
	if share >= 0.1 || share == 0 {
		return fmt.Sprintf("%.0f %%", 100*share)
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// short has three digits that count, or all of a larger number.
func short(x float64) string {
	if math.Abs(x) >= 99.5 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// rough has two digits that count, or all of a larger number.
func rough(x float64) string {
	if x >= 99.5 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2g", x)
}

// amount gives figures of one unit: "61 W".
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

// times is "once", "3 times".
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// epochs is "1 epoch", "2.5 epochs".
func epochs(n float64) string {
	if n == 1 {
		return "1 epoch"
	}
	return fmt.Sprintf("%.6g epochs", n)
}

// roundStep is 1, 2 or 5 times a power of ten, so that a few marks fit below top; without a usable top one mark does.
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
