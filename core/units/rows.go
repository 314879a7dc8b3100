package units

import (
	"fmt"
	"math"
	"strings"
)

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

// Amount is how much all rows hold: "9.91 h", "12979 tokens", "1.78 M tokens".
func (r RowKind) Amount(hours float64) string {
	if !r.AreTexts() {
		return fmt.Sprintf("%.2f h", hours)
	}
	if tokens := math.Round(r.In(3600 * hours)); tokens < 1e5 {
		return fmt.Sprintf("%.0f tokens", tokens)
	}
	return fmt.Sprintf("%.3g M tokens", r.In(3600*hours)/1e6)
}
