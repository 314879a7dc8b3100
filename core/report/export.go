package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/runlog"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// Export writes what the monitors of a run saw, for other programs: "csv", "jsonl" or "chrome".
// Errors: Corrupt, InvalidArgument.
func Export(sources []Source, format string) ([]byte, error) {
	start, err := align(sources)
	if err != nil {
		return nil, err
	}
	switch format {
	case "csv":
		return asCSV(sources)
	case "jsonl":
		return asLines(sources), nil
	case "chrome":
		return asTrace(sources, start), nil
	}
	return nil, fault.New(fault.InvalidArgument, "choose csv, jsonl or chrome",
		"exporting a run: there is no format %q", fault.Shorten(format))
}

// asCSV is a wide table: cells of what is not known are empty.
func asCSV(sources []Source) ([]byte, error) {
	var out bytes.Buffer
	w, columns, places := csv.NewWriter(&out), names(sources), map[string]int{}
	for i, name := range columns {
		places[name] = i
	}
	err := w.Write(columns)
	eachRow(sources, func(row []cell) {
		line := make([]string, len(columns))
		for _, c := range row {
			if text, is := c.value.(string); is {
				line[places[c.name]] = view.Cell(text)
			} else {
				line[places[c.name]] = string(appendNumber(nil, c.value))
			}
		}
		err = cmp.Or(err, w.Write(line))
	})
	w.Flush()
	return out.Bytes(), err
}

// appendNumber writes every digit of a number, nothing of one that is not known; numbers without a
// fraction have no point.
func appendNumber(out []byte, value any) []byte {
	x := math.NaN()
	switch v := value.(type) {
	case float64:
		x = v
	case *float64:
		if v != nil {
			x = *v
		}
	}
	switch size := math.Abs(x); {
	case math.IsNaN(x):
		return out
	case x == math.Trunc(x) && size < 1<<53:
		return strconv.AppendInt(out, int64(x), 10)
	case size >= 1e-4 && size < 1e16:
		return strconv.AppendFloat(out, x, 'f', -1, 64)
	}
	return strconv.AppendFloat(out, x, 'e', -1, 64)
}

// asLines are JSON objects, one a line: first of each run, then of each row.
func asLines(sources []Source) (out []byte) {
	for i := range sources {
		log := &sources[i].RunLog
		head := object("series", "run", "source", cmp.Or(sources[i].Name, "first"), "start_unix_s",
			float64(log.StartUnixNanos)/1e9,
			"duration_s", log.DurationS, "interval_s", log.IntervalS, "samples", log.Samples,
			"errors", log.Errors, "gpus", log.GPUs, "host", log.Host)
		out = append(append(out, head...), '\n')
	}
	eachRow(sources, func(row []cell) {
		var fields []any
		for _, c := range row {
			if c.value != "" {
				fields = append(fields, c.name, c.value)
			}
		}
		out = append(append(out, object(fields...)...), '\n')
	})
	return out
}

// object is a JSON object of names and values by turns, without those that are not known. A value
// of bytes is JSON.
func object(fields ...any) json.RawMessage {
	out := []byte{'{'}
	for i := 0; i < len(fields); i += 2 {
		before := len(out)
		out = append(strconv.AppendQuote(out, fields[i].(string)), ':')
		named := len(out)
		switch v := fields[i+1].(type) {
		case nil, float64, *float64:
			out = appendNumber(out, v)
		case json.RawMessage:
			out = append(out, v...)
		default:
			text, err := json.MarshalWithOption(v, json.DisableHTMLEscape())
			if err != nil {
				panic(err) // texts and records of a run log that was checked always have JSON
			}
			out = append(out, text...)
		}
		if out = append(out, ','); len(out) == named+1 {
			out = out[:before]
		}
	}
	return append(out[:max(1, len(out)-1)], '}')
}

const (
	otherThread = 4   // events and alerts
	room        = 100 // processes of one source
)

// threads are those of the steps, by their kinds; the first is number 1.
var threads = []string{runlog.KindTrain, runlog.KindEvaluation, runlog.KindCheckpoint}

// tracer writes the "Trace Event Format" of the Chromium project, whose times are microseconds.
// Each GPU is a process of its own, and so is the host, so that viewers group what belongs
// together.
type tracer struct {
	*Source
	host   int // its process
	events [][]byte
}

func asTrace(sources []Source, start int64) []byte {
	var events [][]byte
	for i := range sources {
		t := tracer{&sources[i], i*room + 1, events}
		t.names()
		t.memory()
		t.activity()
		t.steps()
		t.moments()
		events = t.events
	}
	list := slices.Concat([]byte{'['}, bytes.Join(events, []byte{','}), []byte{']'})
	return object("traceEvents", json.RawMessage(list), "displayTimeUnit", "ms", "otherData",
		object("start_unix_nanos", strconv.FormatInt(start, 10)))
}

func (t *tracer) add(fields ...any) { t.events = append(t.events, object(fields...)) }

func (t *tracer) micros(atS float64) float64 { return math.RoundToEven(1e6 * (atS + t.offset)) }

func (t *tracer) names() {
	names, prefix := []string{"host and steps"}, t.Name
	for i, gpu := range t.RunLog.GPUs {
		names = append(names, fmt.Sprintf("GPU %d: %s", i, gpu.Name))
	}
	if prefix != "" {
		prefix += " "
	}
	for i, name := range names {
		t.add("ph", "M", "pid", t.host+i, "name", "process_name", "args",
			object("name", prefix+name))
		t.add("ph", "M", "pid", t.host+i, "name", "process_sort_index", "args",
			object("sort_index", t.host+i))
	}
	for i, name := range append(slices.Clone(threads), "events and alerts") {
		t.add("ph", "M", "pid", t.host, "tid", i+1, "name", "thread_name", "args",
			object("name", name))
	}
}

// counter is what is known of each moment, none where nothing is; columns are names and columns by
// turns.
func (t *tracer) counter(pid int, name string, times []float64, columns ...any) {
	values := make([]any, len(columns))
	for i, atS := range times {
		for k := 0; k < len(columns); k += 2 {
			values[k], values[k+1] = columns[k], columns[k+1].(runlog.Column)[i]
		}
		if args := object(values...); len(args) > len("{}") {
			t.add("ph", "C", "pid", pid, "name", name, "ts", t.micros(atS), "args", args)
		}
	}
}

func (t *tracer) memory() {
	memory, steps := &t.RunLog.Memory, &t.RunLog.Steps
	t.counter(t.host, "RAM", memory.TimesS, "used_bytes", memory.HostUsed)
	for g, used := range memory.GPUUsed {
		t.counter(t.host+1+g, "memory", memory.TimesS, "used_bytes", used)
		for i, atS := range steps.TimesS {
			if steps.GPU[i] == g {
				t.counter(t.host+1+g, "PyTorch", []float64{atS}, "peak_allocated_bytes",
					steps.PeakAllocated[i:],
					"peak_reserved_bytes", steps.PeakReserved[i:], "headroom_bytes",
					steps.Headroom[i:])
			}
		}
	}
}

func (t *tracer) activity() {
	a := &t.RunLog.Activity
	t.counter(t.host, "processors", a.TimesS, "share", a.CPUShare, "training", a.TreeCPU, "busiest",
		a.BusiestCore)
	t.counter(t.host, "processes", a.TimesS, "training_bytes", a.TreeRSS, "workers_bytes",
		a.WorkersRSS, "shm_bytes", a.ShmUsed)
	t.counter(t.host, "disk", a.TimesS, "read_bytes_s", a.DiskRead, "written_bytes_s",
		a.DiskWritten)
	for i, g := range a.GPUs {
		t.counter(t.host+1+i, "utilization", a.TimesS, "kernels", g.Utilization, "memory",
			g.MemoryBusy, "multiprocessors", g.SMActive, "tensor cores", g.TensorActive)
		t.counter(t.host+1+i, "power", a.TimesS, "watts", g.PowerW)
		t.counter(t.host+1+i, "temperature", a.TimesS, "celsius", g.Temperature)
		t.counter(t.host+1+i, "clock", a.TimesS, "mhz", g.ClockMHz)
	}
}

// steps are slices; an entry without its time has none.
func (t *tracer) steps() {
	s := &t.RunLog.Steps
	for i, end := range s.TimesS {
		thread := slices.Index(threads, s.Kind[i]) + 1
		if thread == 0 {
			thread = otherThread
		}
		if !math.IsNaN(s.SpentS[i]) {
			t.add("ph", "X", "pid", t.host, "tid", thread, "name",
				fmt.Sprintf("%s %d", s.Kind[i], s.Number[i]), "cat", s.Kind[i],
				"ts", t.micros(end-s.SpentS[i]), "dur", math.RoundToEven(1e6*s.SpentS[i]), "args",
				object("covers", s.Covers[i],
					"waited_s", s.WaitedS[i], "audio_s", s.AudioS[i], "padded_s", s.PaddedS[i],
					"longest_s", s.LongestS[i], "arithmetic_s", s.ArithmeticS[i]))
		}
	}
}

// moments are instants of events and alerts.
func (t *tracer) moments() {
	for _, e := range t.RunLog.Events {
		t.instant(e.AtS, e.Kind, e.GPU, object("text", e.Text))
	}
	for _, a := range t.RunLog.Alerts {
		t.instant(a.AtS, "alert: "+a.Kind, a.GPU,
			object("text", a.Text, "advice", a.Advice, "severity", a.Severity))
		if a.ClearedS != nil {
			t.instant(*a.ClearedS, "cleared: "+a.Kind, a.GPU, object("text", a.Text))
		}
	}
}

// instant is in its GPU's process; those of none reach across all.
func (t *tracer) instant(atS float64, name string, gpu int, args json.RawMessage) {
	place := []any{"pid", t.host + 1 + gpu, "s", "p"}
	if gpu < 0 {
		place = []any{"pid", t.host, "tid", otherThread, "s", "g"}
	}
	t.add(append([]any{"ph", "i", "ts", t.micros(atS), "name", name, "cat", "event", "args", args},
		place...)...)
}
