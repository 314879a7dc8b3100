package fault

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

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
