package fault

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintable(t *testing.T) {
	require.Equal(t, "größe.wav", Printable("größe.wav"))
	require.Equal(t, `gr\xf6\xdfe ö.wav`, Printable("gr\xf6\xdfe ö.wav"))
}

func TestWrapKeepsTheCause(t *testing.T) {
	err := Wrap(fs.ErrNotExist, NotFound, "check the path", "opening %q", "a.wav")
	require.EqualError(t, err, `opening "a.wav": file does not exist`)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, "check the path", err.Hint)
	require.NoError(t, errors.Unwrap(New(Corrupt, "", "no cause")))
}

func TestFrom(t *testing.T) {
	known := New(Corrupt, "hint", "text")
	for name, row := range map[string]struct {
		err  error
		code Code
	}{
		"itself":    {known, Corrupt},
		"inside":    {errors.Join(errors.New("first"), known), Corrupt},
		"cancelled": {context.Canceled, Cancelled},
		"deadline":  {context.DeadlineExceeded, Cancelled},
		"unknown":   {errors.New("strange"), Internal},
	} {
		t.Run(name, func(t *testing.T) {
			found := From(row.err)
			require.Equal(t, row.code, found.Code)
			require.Contains(t, row.err.Error(), found.Message[len(found.Message)-4:])
		})
	}
}

func TestPoisonKeepsTheFirstPanic(t *testing.T) {
	t.Cleanup(func() { poison.Store(nil) })
	require.NoError(t, PoisonError())
	require.ErrorContains(t, Poison("first place", "one"), "first place: one")
	require.ErrorContains(t, Poison("second place", errors.New("two")), "second place: two")
	require.ErrorContains(t, PoisonError(), "first place: one")
	require.Equal(t, Poisoned, From(PoisonError()).Code)
}

func TestEditDistance(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"t4", "", 2}, {"", "l4", 2}, {"t4", "t4", 0}, {"t4", "l4", 1}, {"kitten", "sitting", 3}, {"a100", "h100", 1}} {
		require.Equal(t, row.want, EditDistance(row.a, row.b), "%q %q", row.a, row.b)
		require.Equal(t, row.want, EditDistance(row.b, row.a), "%q %q", row.b, row.a)
	}
}

func TestWords(t *testing.T) {
	require.Equal(t, "1 GPU", Plural(1, "GPU"))
	require.Equal(t, "0 GPUs", Plural(0, "GPU"))
	require.Equal(t, "2 GPUs", Plural(2, "GPU"))
	require.Equal(t, "T4", Shorten("T4"))
	require.Equal(t, strings.Repeat("é", 80), Shorten(strings.Repeat("é", 80)))
	require.Equal(t, strings.Repeat("é", 80)+"…", Shorten(strings.Repeat("é", 81)), "cut between characters, never inside one")
	require.Equal(t, "a?b", Shorten("a\xffb"))
}
