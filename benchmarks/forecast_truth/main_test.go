package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/forecast"
)

// TestForecastsOnAFewTrainings is the benchmark made small: the aims hold within what so few trainings can tell.
func TestForecastsOnAFewTrainings(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	r := measure(3_000_000, 3, 14, 2, "")
	require.Len(t, r.by, len(troubles)+1)
	share, of := r.warned()
	assert.GreaterOrEqual(t, of, 2*len(troubles))
	assert.GreaterOrEqual(t, share, 0.9)
	assert.Greater(t, r.normalHours, 24.0)
	assert.LessOrEqual(t, r.alarms, 3)
	assert.Zero(t, r.broken)
	var table bytes.Buffer
	r.print(&table, true)
	assert.Contains(t, table.String(), "| fast leak | 3 | 3 |")
}

// TestOneThatNeverWarnsFails: the measure itself must be able to fail.
func TestOneThatNeverWarnsFails(t *testing.T) {
	mute := newBad(1, 0)
	mute.w = forecast.New(0)
	o := judged(mute, 1)
	require.True(t, o.ran)
	assert.False(t, o.warned)
	r := summed([]outcome{o, {kind: "", hours: 24, falseAlarms: []string{"x"}}})
	assert.False(t, r.good())
	assert.Equal(t, 1.0, r.perDay())
	r = summed([]outcome{{kind: "", hours: 12, falseAlarms: []string{"x"}}})
	assert.False(t, r.good())
	r = summed([]outcome{{kind: "", hours: 12}, {kind: "fast leak", ran: true, warned: true}})
	assert.True(t, r.good())
}

func TestTheSameSeedIsTheSameTraining(t *testing.T) {
	a, b := judged(newBad(7, 4), 7), judged(newBad(7, 4), 7)
	assert.Equal(t, a, b)
	assert.Positive(t, a.hours)
}

func TestFiguresAreWritten(t *testing.T) {
	r := summed([]outcome{
		{kind: "fast leak", ran: true, warned: true},
		{kind: "fast leak", ran: true},
		{hours: 48, falseAlarms: []string{"one"}},
	})
	file := filepath.Join(t.TempDir(), "figures.json")
	require.NoError(t, r.write(file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, `{"forecast_seen": 50, "forecast_trainings": 2, "forecast_false": 0.5}`, string(text))
	require.ErrorContains(t, r.write(t.TempDir()), "writing the figures of 2 trainings")
}
