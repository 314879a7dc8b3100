package trace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

func TestRoundTrip(t *testing.T) {
	f := tracetest.Usual(2)
	data := tracetest.Encode(&f.Trace)
	read, err := trace.Decode(data)
	require.NoError(t, err)
	require.Equal(t, &f.Trace, read)

	path := filepath.Join(t.TempDir(), "a.trace")
	require.NoError(t, os.WriteFile(path, data, 0o644))
	read, err = trace.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, &f.Trace, read)
}

// TestRefused breaks one thing at a time in a sound trace.
func TestRefused(t *testing.T) {
	type object = map[string]any
	segment := func(d object, i int) object { return d["segments"].([]any)[i].(object) }
	add := func(list any, more ...any) []any { return append(list.([]any), more...) }
	for name, c := range map[string]struct {
		change func(d object)
		code   fault.Code
		says   string
	}{
		"other format":   {func(d object) { d["format"] = "zip" }, fault.Corrupt, `its format is "zip"`},
		"newer version":  {func(d object) { d["version"], d["streams"] = 3, []any{} }, fault.VersionMismatch, "version 3"},
		"older version":  {func(d object) { d["version"] = 1 }, fault.VersionMismatch, "version 1, without what operations compute"},
		"no version":     {func(d object) { delete(d, "version") }, fault.Corrupt, "version 0"},
		"calls of words": {func(d object) { d["calls"] = []any{object{"op": "aten.add.Tensor", "numbers": 5}} }, fault.Corrupt, "5 numbers"},
		"wild call":      {func(d object) { segment(d, 1)["calls"] = []any{7} }, fault.Corrupt, "none of 0 kinds"},
		"calls without numbers": {func(d object) {
			d["calls"], segment(d, 1)["calls"] = []any{object{"op": "aten.add.Tensor", "numbers": 2}}, []any{0}
		}, fault.Corrupt, "calls have 2 numbers"},
		"negative bytes": {func(d object) {
			d["calls"], segment(d, 1)["calls"], segment(d, 1)["numbers"] = []any{object{"op": "aten.add.Tensor", "numbers": 2}}, []any{0}, []any{5, -5}
		}, fault.Corrupt, "calls have 2 numbers"},
		"unknown field":     {func(d object) { d["streams"] = []any{} }, fault.Corrupt, "streams"},
		"nested about":      {func(d object) { d["about"] = object{"a": object{}} }, fault.Corrupt, `about: "a"`},
		"no segments":       {func(d object) { d["segments"] = []any{} }, fault.Corrupt, "number of segments is 0"},
		"many tags":         {func(d object) { d["tags"] = make([]string, 17) }, fault.Corrupt, "number of tags is 17"},
		"columns of words":  {func(d object) { d["ops"] = add(d["ops"], "column_sum:x") }, fault.Corrupt, "from 1 to 2147483648"},
		"too many columns":  {func(d object) { d["ops"] = add(d["ops"], "column_sum:2147483649") }, fault.Corrupt, "column_sum:2147483649"},
		"no lengths":        {func(d object) { d["lengths"] = []any{} }, fault.Corrupt, "number of lengths is 0"},
		"length of a later": {func(d object) { d["lengths"].([]any)[1].(object)["of"] = 2 }, fault.Corrupt, "length 1 (length1)"},
		"input of another":  {func(d object) { d["lengths"].([]any)[0].(object)["of"] = 0 }, fault.Corrupt, "length 0 (input)"},
		"unknown kind":      {func(d object) { segment(d, 1)["kind"] = "dream" }, fault.Corrupt, "segment 1 (dream)"},
		"second load":       {func(d object) { segment(d, 1)["kind"] = "load" }, fault.Corrupt, "load comes first"},
		"stray accumulate":  {func(d object) { segment(d, 1)["kind"] = "accumulate" }, fault.Corrupt, "no micro segment"},
		"no batch":          {func(d object) { delete(segment(d, 1), "batch") }, fault.Corrupt, "batch or length is missing"},
		"batch of none":     {func(d object) { segment(d, 1)["batch"] = 0 }, fault.Corrupt, "batch is 0"},
		"huge storage":      {func(d object) { segment(d, 1)["events"].([]any)[0] = int64(1) << 60 }, fault.Corrupt, "event 0"},
		"free of no one":    {func(d object) { e := segment(d, 0); e["events"] = add(e["events"], -100) }, fault.Corrupt, "frees storage 99"},
		"second free": {func(d object) { e := segment(d, 0); e["events"] = add(e["events"], -1, -1) }, fault.Corrupt,
			"segment 0 (load): event 4 frees storage 0"},
		"smallest number": {func(d object) { e := segment(d, 0); e["events"] = add(e["events"], int64(-1)<<63) }, fault.Corrupt, "not allocated"},
		"short column":    {func(d object) { segment(d, 0)["op"] = []any{0} }, fault.Corrupt, "op has not"},
		"wild index":      {func(d object) { segment(d, 0)["module"] = []any{0, 0, 99} }, fault.Corrupt, "module has not"},
		"negative index":  {func(d object) { segment(d, 0)["tag"] = []any{0, -1, 0} }, fault.Corrupt, "tag has not"},
		"late phase":      {func(d object) { segment(d, 0)["phases"] = []any{[]any{1, "load"}} }, fault.Corrupt, "out of order at event 1"},
		"unknown phase":   {func(d object) { segment(d, 0)["phases"] = []any{[]any{0, "sleep"}} }, fault.Corrupt, `"sleep"`},
		"phases mixed up": {func(d object) {
			segment(d, 1)["phases"] = []any{[]any{0, "forward"}, []any{9, "backward"}, []any{5, "forward"}}
		},
			fault.Corrupt, "out of order"},
		"phase of three": {func(d object) { segment(d, 0)["phases"] = []any{[]any{0, "load", 1}} }, fault.Corrupt, "a phase is [event, name]"},
		"fraction":       {func(d object) { segment(d, 0)["events"] = []any{1.5} }, fault.Corrupt, "trace"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := tracetest.JSON(&tracetest.Usual(1).Trace)
			var d object
			require.NoError(t, json.Unmarshal(raw, &d))
			c.change(d)
			raw, err := json.Marshal(d)
			require.NoError(t, err)
			_, err = trace.Decode(tracetest.Pack(raw))
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.code, fault.From(err).Code)
			require.NotEmpty(t, fault.From(err).Hint)
		})
	}
}

func TestDamagedFiles(t *testing.T) {
	f := tracetest.Usual(1)
	data := tracetest.Encode(&f.Trace)
	for name, c := range map[string]struct {
		data []byte
		says string
	}{
		"empty":      {nil, "not a gzip file"},
		"not gzip":   {[]byte("{}"), "not a gzip file"},
		"cut":        {data[:len(data)/2], "ends early"},
		"not JSON":   {tracetest.Pack([]byte("hello")), "trace"},
		"two values": {tracetest.Pack([]byte(`{"format":"asrconfig-trace","version":1} {}`)), "trace"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := trace.Decode(c.data)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := trace.Unpack(tracetest.Pack(bytes.Repeat([]byte{' '}, 4<<20+1)), "trace", 4<<20)
	require.ErrorContains(t, err, "more than 4 MiB unpacked")
	_, err = trace.ReadFile(t.TempDir())
	require.ErrorContains(t, err, "is not a file")
	_, err = trace.ReadFile(filepath.Join(t.TempDir(), "none"))
	require.Equal(t, fault.NotFound, fault.From(err).Code)
}

// FuzzDecode: what is read is written and read again as it was.
func FuzzDecode(f *testing.F) {
	small := tracetest.New(1)
	small.Run(tracetest.Shapes[:3], 2)
	f.Add(tracetest.JSON(&small.Trace))
	f.Add([]byte(`{"format":"asrconfig-trace","version":1,"segments":[{"kind":"load","events":[0,-1],"phases":[[0,"load"]]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		read, err := trace.Decode(tracetest.Pack(raw))
		if err != nil {
			return
		}
		again, err := trace.Decode(tracetest.Encode(read))
		require.NoError(t, err)
		require.Equal(t, read, again)
	})
}
