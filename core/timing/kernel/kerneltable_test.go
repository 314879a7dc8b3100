package kernel

import (
	"bytes"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/gpus"
)

// tableOf is what the model itself predicts for a card, by so many times.
func tableOf(t testing.TB, name string, times float64) Table {
	t.Helper()
	entry, _, err := gpus.Parse(name)
	require.NoError(t, err)
	card, err := CardOf(entry)
	require.NoError(t, err)
	m := New(card)
	m.launch = 0
	table := Table{Version: 1, GPU: entry.DriverNames[0], MemoryBytes: entry.MemoryTotalBytes, Date: "2026-03-01", LaunchS: 2e-6, DispatchS: 7e-6}
	for _, s := range suiteFor(t, SuiteRequest{ComputeCapability: entry.ComputeCapability, MemoryBytes: float64(entry.MemoryTotalBytes)}) {
		work, err := m.Seconds(s.Operation)
		require.NoError(t, err)
		seconds := times*work + table.LaunchS*s.Operation.launches()
		table.Kernels = append(table.Kernels, Row{s.Operation, seconds, seconds, seconds})
	}
	return table
}

func suiteFor(t testing.TB, r SuiteRequest) []Sample {
	t.Helper()
	samples, err := Suite(r)
	require.NoError(t, err)
	return samples
}

func TestTheSuiteHasEveryKindAndFitsTheCard(t *testing.T) {
	for capability, types := range map[string]int{"": 1, "6.0": 2, "7.5": 2, "8.0": 4, "9.0": 4} {
		suite := suiteFor(t, SuiteRequest{ComputeCapability: capability, MemoryBytes: 16e9})
		kinds, dtypes, operations := map[Kind]int{}, map[DType]bool{}, map[Operation]bool{}
		for _, s := range suite {
			require.NoError(t, s.Operation.Check())
			require.LessOrEqual(t, s.Operation.Bytes(), 4e9)
			require.NotEmpty(t, s.Shape)
			require.False(t, operations[s.Operation], "%v", s)
			kinds[s.Operation.Kind]++
			dtypes[s.Operation.DType], operations[s.Operation] = true, true
		}
		assert.Len(t, kinds, 12, capability)
		assert.Len(t, dtypes, types, capability)
		assert.Greater(t, len(suite), minRows)
	}
	all := suiteFor(t, SuiteRequest{MemoryBytes: 16e9})
	few := suiteFor(t, SuiteRequest{MemoryBytes: 16e9, MostFLOPs: 1e9})
	assert.Less(t, len(few), len(all))
	for _, s := range few {
		require.LessOrEqual(t, s.Operation.FLOPs(), 1e9)
	}
	for _, r := range []SuiteRequest{{}, {MemoryBytes: math.NaN()}, {MemoryBytes: 1e9, MostFLOPs: -1}} {
		_, err := Suite(r)
		require.ErrorContains(t, err, "bytes of memory")
	}
}

func TestAProfileIsMeasuredOverPredicted(t *testing.T) {
	table := tableOf(t, "T4", 1.5)
	p, err := table.Profile()
	require.NoError(t, err)
	assert.Equal(t, "T4", p.GPU)
	for _, f := range p.Factors {
		require.InEpsilon(t, 1.5, f.Factor, 1e-9, f.Group)
		require.InEpsilon(t, 0.95*1.5, f.Low, 1e-9, f.Group)
		require.GreaterOrEqual(t, f.Steps, fewestOfGroup)
	}
	card, err := table.card()
	require.NoError(t, err)
	plain := New(card)
	m, err := plain.Corrected(p)
	require.NoError(t, err)
	for _, row := range table.Kernels {
		took := secondsOf(t, m, row.Operation)
		require.InEpsilon(t, row.Seconds, took, 1e-9, row.Name)
	}
	operations := []Operation{table.Kernels[0].Operation}
	before, err := plain.Step(operations)
	require.NoError(t, err)
	after, err := m.Step(operations)
	require.NoError(t, err)
	width := func(s Step) float64 { return s.Seconds().High / s.Seconds().Low }
	assert.Less(t, width(after), width(before), "the bounds are those of the table")
	assert.InDelta(t, 7e-6, after[Forward].Host.Likely, 1e-12)
	assert.Equal(t, Dispatch, before[Forward].Host)
}

func TestATableThatCannotBeIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*Table)
		message string
	}{
		"version":             {func(t *Table) { t.Version = 2 }, "version 2"},
		"few kernels":         {func(t *Table) { t.Kernels = t.Kernels[:20] }, "20 kernels"},
		"no date":             {func(t *Table) { t.Date = "" }, "the date"},
		"no launch":           {func(t *Table) { t.LaunchS = 0 }, "seconds of a launch 0"},
		"long dispatch":       {func(t *Table) { t.DispatchS = 1 }, "seconds of a dispatch 1"},
		"zero":                {func(t *Table) { t.Kernels[3].Seconds = 0 }, "0 seconds for"},
		"negative":            {func(t *Table) { t.Kernels[3].Seconds = -1 }, "-1 seconds for"},
		"not a number":        {func(t *Table) { t.Kernels[3].Seconds = math.NaN() }, "NaN seconds for"},
		"infinite":            {func(t *Table) { t.Kernels[3].Seconds = math.Inf(1) }, "+Inf seconds for"},
		"outside its spread":  {func(t *Table) { t.Kernels[3].High = t.Kernels[3].Seconds / 2 }, "between"},
		"negative sizes":      {func(t *Table) { t.Kernels[0].M = -1 }, `"linear" has m -1`},
		"unknown type":        {func(t *Table) { t.Kernels[0].DType = "int8" }, "data type int8"},
		"unknown card":        {func(t *Table) { t.GPU = "%d fast card" }, "no GPU"},
		"card without a name": {func(t *Table) { t.GPU = "" }, "no GPU"},
		"above the peak":      {func(t *Table) { t.Kernels[0] = longer(t.Kernels[0], 0.1) }, "FLOP/s for \"linear\": more than 2 times the peak of a T4"},
		"above the bandwidth": {func(t *Table) { t.LaunchS = 1e-7; each(t, Elementwise, 0.2) }, "times the bandwidth of a T4"},
		"faster than memory":  {func(t *Table) { t.LaunchS = 1e-7; each(t, Copy, 0.6) }, "copy kernels at 1"},
		"two memories":        {func(t *Table) { each(t, Elementwise, 3.2) }, "elementwise kernels in float16 that take 3.2"},
		"slower copies":       {func(t *Table) { each(t, Copy, 3.2) }, "and copies that take 3.2"},
		"no products":         {func(t *Table) { t.Kernels = slices.DeleteFunc(t.Kernels, func(r Row) bool { return r.Kind == GEMM }) }, "too few matrix products"},
		"beyond belief":       {func(t *Table) { each(t, Elementwise, 60); each(t, Copy, 60) }, "the factor"},
	} {
		t.Run(name, func(t *testing.T) {
			table := tableOf(t, "T4", 1)
			test.change(&table)
			err := table.check()
			if err == nil {
				_, err = table.Profile()
			}
			require.ErrorContains(t, err, test.message)
			require.NotEqual(t, fault.Internal, fault.From(err).Code)
		})
	}
}

func longer(r Row, times float64) Row {
	r.Seconds, r.Low, r.High = times*r.Seconds, times*r.Low, times*r.High
	return r
}

func each(t *Table, kind Kind, times float64) {
	for i, r := range t.Kernels {
		if r.Kind == kind {
			t.Kernels[i] = longer(r, times)
		}
	}
}

func TestAnotherCardsTableIsRefusedByItsRates(t *testing.T) {
	table := tableOf(t, "H100", 1)
	table.GPU, table.MemoryBytes = "Tesla T4", 0
	_, err := table.Profile()
	require.ErrorContains(t, err, "more than 2 times the peak of a T4")
}

func TestAProfileThatNoTableSaysIsRefused(t *testing.T) {
	good, err := tableOf(t, "T4", 1).Profile()
	require.NoError(t, err)
	card, err := tableOf(t, "T4", 1).card()
	require.NoError(t, err)
	for message, change := range map[string]func(*Profile){
		"measured on a L4":        func(p *Profile) { p.GPU = "L4" },
		"the date":                func(p *Profile) { p.Date = "soon" },
		"the factor NaN":          func(p *Profile) { p.Factors[0].Factor = math.NaN() },
		"the factor 0":            func(p *Profile) { p.Factors[0].Factor, p.Factors[0].Low = 0, 0 },
		"seconds of a launch NaN": func(p *Profile) { p.LaunchS = math.NaN() },
	} {
		changed := good
		changed.Factors = slices.Clone(good.Factors)
		change(&changed)
		_, err := New(card).Corrected(changed)
		require.ErrorContains(t, err, message)
	}
}

func TestTextThatIsNoTableIsCorrupt(t *testing.T) {
	text, err := json.Marshal(tableOf(t, "T4", 1))
	require.NoError(t, err)
	_, err = ReadTable(text)
	require.NoError(t, err)
	launch := regexp.MustCompile(`"launch_s":[^,]+`)
	require.Regexp(t, launch, string(text))
	for name, broken := range map[string][]byte{
		"empty": {}, "truncated": text[:len(text)/2], "NaN": launch.ReplaceAll(text, []byte(`"launch_s":NaN`)), "list": []byte("[]"),
		"overflow":      launch.ReplaceAll(text, []byte(`"launch_s":1e999`)),
		"unknown field": bytes.Replace(text, []byte(`"date"`), []byte(`"day"`), 1), "nested": []byte(strings.Repeat(`{"kernels":[`, 100000)),
	} {
		_, err := ReadTable(broken)
		require.Error(t, err, name)
		require.Equal(t, fault.Corrupt, fault.From(err).Code, "%s: %v", name, err)
	}
}

func FuzzReadTable(f *testing.F) {
	table := tableOf(f, "T4", 1.2)
	table.Kernels = table.Kernels[:minRows]
	text, err := json.Marshal(table)
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"version":1,"gpu":"T4","kernels":[{"kind":"gemm","dtype":"float32","m":1,"seconds":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := ReadTable(text)
		if err != nil {
			return
		}
		if p, err := table.Profile(); err == nil {
			require.NoError(t, p.Check())
		}
	})
}
