package runlog

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func TestColumnKeepsWhatIsNotKnown(t *testing.T) {
	absent := math.NaN()
	text, err := json.Marshal(struct{ C Column }{Column{1, absent, 2.5, 17179869184, math.Inf(1), 0, -3}})
	require.NoError(t, err)
	assert.Equal(t, `{"C":[1,null,2.5,17179869184,null,0,-3]}`, string(text))
	var back struct{ C Column }
	require.NoError(t, json.Unmarshal(text, &back))
	require.Len(t, back.C, 7)
	assert.True(t, math.IsNaN(back.C[1]))
	assert.Equal(t, 17179869184.0, back.C[3])
	assert.Error(t, json.Unmarshal([]byte(`{"C":["a"]}`), &back))
	assert.ErrorContains(t, json.Unmarshal([]byte(`{"C":[1,1.7e308]}`), &back), "1.7e+308 is out of range")
	require.NoError(t, json.Unmarshal([]byte(`{"C":null}`), &back))
	assert.Nil(t, back.C)
}

func TestHeadroomAtThePeakOfAStep(t *testing.T) {
	steps := StepSeries{
		Headroom:      Column{9, 9, 9, 2, 9},
		Allocated:     Column{4, 4, math.NaN(), 4, 4},
		PeakAllocated: Column{7, 3, 7, 8, math.NaN()},
	}
	for i, want := range []float64{6, 9, 9, 0, 9} {
		assert.Equal(t, want, steps.HeadroomAtPeak(i), i)
	}
}

// whole is a run log of two points of one GPU.
func whole() *Log {
	s := &Log{Version: Version, GPUs: make([]GPU, 1), Memory: MemorySeries{TimesS: []float64{0, 1}, HostUsed: Column{1, math.NaN()}, GPUUsed: []Column{{1, 2}}}}
	s.Activity.GPUs = make([]GPUSeries, 1)
	return s
}

func TestCheck(t *testing.T) {
	require.NoError(t, whole().Check())
	for want, change := range map[string]func(*Log){
		"memory.host_used_bytes has 1 entries, not 2":             func(s *Log) { s.Memory.HostUsed = Column{1} },
		"memory.gpu_used_bytes[0] has 3 entries, not 2":           func(s *Log) { s.Memory.GPUUsed[0] = Column{1, 2, 3} },
		"activity.cpu_share has 1 entries, not 0":                 func(s *Log) { s.Activity.CPUShare = Column{1} },
		"activity.gpus[0].power_w has 1 entries, not 0":           func(s *Log) { s.Activity.GPUs[0].PowerW = Column{1} },
		"steps.kind has 1 entries, not 0":                         func(s *Log) { s.Steps.Kind = []string{KindTrain} },
		"memory.host_used_bytes[0] = +Inf is not a finite number": func(s *Log) { s.Memory.HostUsed[0] = math.Inf(1) },
		"memory.times_s[1] = 1e+308 is not a finite number":       func(s *Log) { s.Memory.TimesS[1] = 1e308 },
		"alerts[0].seconds_left = -1e+308 is not a finite number": func(s *Log) { far := -1e308; s.Alerts = []Alert{{Seconds: &far}} },
		"its columns are not those of 0 GPUs":                     func(s *Log) { s.GPUs = nil },
		"it lasts -1 s":                                           func(s *Log) { s.DurationS = -1 },
	} {
		s := whole()
		change(s)
		err := s.Check()
		require.ErrorContains(t, err, want)
		assert.Equal(t, fault.Corrupt, fault.From(err).Code)
	}
}

func TestMemoryIsThatOfTheAlert(t *testing.T) {
	for _, row := range []struct {
		event, alert int
		text         string
		same         bool
	}{{0, 0, "", true}, {1, 0, "", false}, {-1, 0, "CUDA", true}, {-1, 0, "MemoryError", false}, {-1, -1, "MemoryError", true}, {-1, -1, "CUDA", false}} {
		assert.Equal(t, row.same, Event{Kind: EventOOM, GPU: row.event, Text: row.text}.ranOutOf(Alert{GPU: row.alert}), row)
	}
}

// columnNames are the fields of a series that hold columns.
func columnNames(rows reflect.Type) (names []string) {
	for i := range rows.NumField() {
		if rows.Field(i).Type == reflect.TypeFor[Column]() {
			names = append(names, rows.Field(i).Name)
		}
	}
	return names
}

func fieldNames(reading reflect.Type) (names []string) {
	for i := range reading.NumField() {
		names = append(names, reading.Field(i).Name)
	}
	return names
}

func TestReadingsHaveTheFieldsOfTheirSeries(t *testing.T) {
	assert.Equal(t, columnNames(reflect.TypeFor[ActivitySeries]()), fieldNames(reflect.TypeFor[HostReading]()))
	assert.Equal(t, columnNames(reflect.TypeFor[GPUSeries]()), fieldNames(reflect.TypeFor[GPUReading]()))
}

func TestAReadingByNames(t *testing.T) {
	r := NoGPUReading()
	r.PowerW, r.Others = 70, 5
	names := r.Named()
	assert.Len(t, names, len(r.Values(nil)))
	assert.Equal(t, []any{70.0, 5.0, nil}, []any{names["power_w"], names["others_bytes"], names["ecc_uncorrected"]})
	host := NoHostReading()
	assert.Nil(t, host.Named()["sent"], "no such name")
	for _, value := range host.Values(nil) {
		assert.True(t, math.IsNaN(value))
	}
	var rows ActivitySeries
	*rows.Columns()[3] = Column{4}
	assert.Equal(t, Column{4}, rows.HostAvailable)
}

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
