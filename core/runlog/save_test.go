package runlog

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sampleLog() Log {
	since := uint64(420)
	return Log{
		Version: Version, StartUnixNanos: 1_700_000_000_000_000_000, DurationS: 1.25, Samples: 3, GPUs: []GPU{{Name: `a "card"`}, {}},
		Memory:   MemorySeries{TimesS: []float64{0, 0.1}, HostUsed: Column{1, math.NaN()}, GPUUsed: []Column{{5, 17179869184}, nil}},
		Activity: ActivitySeries{TimesS: []float64{}, GPUs: []GPUSeries{{PowerW: Column{2.5}}}},
		Steps:    StepSeries{Number: []uint64{math.MaxUint64}, Kind: []string{KindTrain}, GPU: []int{-1}},
		Events:   []Event{}, Alerts: []Alert{{ID: 1, Since: &since, Text: "é"}},
	}
}

func TestALogIsWrittenAsItsJSON(t *testing.T) {
	s := sampleLog()
	expected, err := json.Marshal(s)
	require.NoError(t, err)
	var written bytes.Buffer
	require.NoError(t, Write(&written, &s))
	assert.JSONEq(t, string(expected), written.String())
	var back Log
	require.NoError(t, json.Unmarshal(written.Bytes(), &back))
	assert.Equal(t, s.Steps.Number, back.Steps.Number)
}

func TestASavedLogIsThereWholeOrNotAtAll(t *testing.T) {
	s, folder := sampleLog(), t.TempDir()
	path := filepath.Join(folder, "run.json")
	require.NoError(t, Save(path, &s))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	err = replace(path, func(to io.Writer) error {
		_, _ = to.Write([]byte("half"))
		return errors.New("the disk is full")
	})
	require.ErrorContains(t, err, "the disk is full")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Len(t, files, 1, "nothing half written stays")
	assert.ErrorContains(t, Save(filepath.Join(folder, "no", "folder", "run.json"), &s), "cannot write the run log")
}

func TestDevicesAndLinksStayWhatTheyAre(t *testing.T) {
	s, folder := sampleLog(), t.TempDir()
	target, link := filepath.Join(folder, "run.json"), filepath.Join(folder, "link.json")
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	require.NoError(t, os.Symlink("run.json", link))
	require.NoError(t, Save(link, &s))
	held, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, "run.json", held)
	text, err := os.ReadFile(target)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"version":1`)
	assert.ErrorContains(t, Save(folder, &s), "not a regular file")

	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	require.NoError(t, os.Symlink("/dev/full", filepath.Join(folder, "full")))
	require.ErrorContains(t, Save(filepath.Join(folder, "full"), &s), "no space left")
	device, err := os.Stat("/dev/full")
	require.NoError(t, err)
	assert.NotZero(t, device.Mode()&os.ModeCharDevice)
}
