package units

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFiguresAreWrittenForPeople(t *testing.T) {
	for want, got := range map[string]string{
		"1.40 GiB": Size(1.5e9), "0.10 GiB": Size(0.1 * GiB), "36.2 MiB": Size(38e6), "0.1 MiB": Size(100 * KiB), "2.9 KiB": Size(3e3), "48 B": Size(48), "0 B": Size(0), "-2.00 GiB": Size(-2 * GiB),
		"0": Rate(499), "1 kB/s": Rate(999), "60 MB/s": Rate(6e7),
		"850 ms": Duration(0.85), "42 s": Duration(42), "12.5 min": Duration(750), "3 h 20 min": Duration(12000), "2 d 4 h": Duration(52 * 3600),
		"30 s": About(30), "6 min": About(360), "2.0 h": About(7200), "3 days": About(3 * 86400), "a long time": About(math.NaN()),
		"87 %": Percent(0.87), "8.0 %": Percent(0.08), "0 %": Percent(0), "not known": Percent(math.NaN()),
		"a, b and 3 more": Listed([]string{"a", "b", "c", "d", "e"}, ", ", 2), "a; b": Listed([]string{"a", "b"}, "; ", 2), "": Listed(nil, ", ", 2),
	} {
		assert.Equal(t, want, got)
	}
}

func TestRowsAreSaidInTheirOwnWords(t *testing.T) {
	for want, got := range map[string]string{
		"1 clip": Clips.Count(1), "32 clips": Clips.Count(32), "1 text": Texts.Count(1), "2 texts": Texts.Count(2), "Texts": Texts.Named(),
		"25.5 s": Clips.Length(25.5), "80000 s": Clips.Length(80_000), "128 tokens": Texts.Length(2.56), "1.30": Clips.Figure("%.2f", 1.3), "65": Texts.Figure("%.2f", 1.3),
		"9.91 h": Clips.Amount(9.91), "13000 tokens": Texts.Amount(260.0 / 3600), "1.8 M tokens": Texts.Amount(10),
		"494 seconds of audio": Clips.Rate(494.2), "24700 tokens": Texts.Rate(494), "durations": Clips.Lengths(), "lengths": Texts.Lengths(),
	} {
		assert.Equal(t, want, got)
	}
	assert.Equal(t, Clips.Count(3), RowKind("").Count(3), "records of before say nothing")
	assert.InDelta(t, 128*8, Texts.Bytes(2.56), 1e-9, "int64 tokens")
	assert.InDelta(t, 64000, Clips.Bytes(1), 1e-9, "float32 at 16 kHz")
}
