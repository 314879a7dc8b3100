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

// Number is what figures come in.
type Number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// Size is "12.41 GiB", "3.0 MiB", "1.0 KiB", "48 B".
func Size[N Number](size N) string {
	bytes := float64(size)
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

// InGiB is "15.0 GiB".
func InGiB[N Number](bytes N) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/GiB) }

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

// Times is "once", "3 times".
func Times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Listed is the first items and how many more there are: "a, b and 3 more".
func Listed(items []string, separator string, limit int) string {
	text := strings.Join(items[:min(limit, len(items))], separator)
	if more := len(items) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// RowKind is what a training takes one by one: clips of audio, whose lengths are said in seconds,
// or texts, in tokens. Figures and settings are seconds in both cases: of a text, TokensPerSecond
// count as one. "" is read as clips.
type RowKind string

// The kinds of rows, by their names in JSON.
const (
	Clips RowKind = "clips"
	Texts RowKind = "texts"
)

// TokensPerSecond is how many tokens of a text count as a second: as many as wav2vec2 makes frames
// of one, since a transformer computes as much for the one as for the other, and whatever is
// assumed of a second of audio then holds.
const TokensPerSecond = 50

// RowWords are the words of a kind of rows.
type RowWords struct {
	Noun, Unit string  // "clip" and "s"
	Content    string  // what the rows hold: "audio"
	Lengths    string  // what each has: "durations"
	PerSecond  float64 // of the unit
	// of a second, as a batch holds it: float32 samples at 16 kHz, or int64 tokens
	Bytes float64
}

// Words are those of each kind.
var Words = map[RowKind]RowWords{
	Clips: {"clip", "s", "audio", "durations", 1, 16000 * 4},
	Texts: {"text", "tokens", "text", "lengths", TokensPerSecond, TokensPerSecond * 8},
}

func (r RowKind) words() RowWords {
	if w, ok := Words[r]; ok {
		return w
	}
	return Words[Clips]
}

// AreTexts reports whether lengths are tokens.
func (r RowKind) AreTexts() bool { return r == Texts }

// Noun is "clip", "text".
func (r RowKind) Noun() string { return r.words().Noun }

// Nouns is "clips", "texts".
func (r RowKind) Nouns() string { return r.Noun() + "s" }

// Unit is that of a length: "s", "tokens".
func (r RowKind) Unit() string { return r.words().Unit }

// Named is "Clips", "Texts", at the beginning of a sentence.
func (r RowKind) Named() string { return strings.ToUpper(r.Noun()[:1]) + r.Nouns()[1:] }

// Content is "audio", "text".
func (r RowKind) Content() string { return r.words().Content }

// Lengths is "durations", "lengths".
func (r RowKind) Lengths() string { return r.words().Lengths }

// Bytes is the size of rows of so many seconds in a batch.
func (r RowKind) Bytes(seconds float64) float64 { return seconds * r.words().Bytes }

// Count is "1 clip", "32 texts".
func (r RowKind) Count(n int) string {
	if n == 1 {
		return "1 " + r.Noun()
	}
	return fmt.Sprintf("%d %s", n, r.Nouns())
}

// In is seconds in the unit of lengths.
func (r RowKind) In(seconds float64) float64 { return seconds * r.words().PerSecond }

// Figure is a length without its unit: seconds in the given format, tokens whole.
func (r RowKind) Figure(format string, seconds float64) string {
	if r.AreTexts() {
		format = "%.0f"
	}
	return fmt.Sprintf(format, r.In(seconds))
}

// Length is "25.5 s", "80000 s", "128 tokens".
func (r RowKind) Length(seconds float64) string {
	format := "%.4g"
	if seconds >= 1000 { // without an exponent
		format = "%.0f"
	}
	return r.Figure(format, seconds) + " " + r.Unit()
}

// Rate is how much a second: "494 seconds of audio", "24700 tokens".
func (r RowKind) Rate(seconds float64) string {
	if r.AreTexts() {
		return r.Figure("", seconds) + " tokens"
	}
	return r.Figure("%.0f", seconds) + " seconds of audio"
}

// leastHours are as many as hundredths of an hour say enough about.
const leastHours = 0.1

// Amount is how much all rows hold: "9.91 h", "4.08 min", "12979 tokens", "1.78 M tokens".
func (r RowKind) Amount(hours float64) string {
	switch {
	case !r.AreTexts() && hours < leastHours:
		return Duration(3600 * hours)
	case !r.AreTexts():
		return fmt.Sprintf("%.2f h", hours)
	}
	if tokens := math.Round(r.In(3600 * hours)); tokens < 1e5 {
		return fmt.Sprintf("%.0f tokens", tokens)
	}
	return fmt.Sprintf("%.3g M tokens", r.In(3600*hours)/1e6)
}
