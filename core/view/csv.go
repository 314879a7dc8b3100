package view

import (
	"cmp"
	"encoding/csv"
	"strconv"
	"strings"
)

// formulaStarts are what a spreadsheet takes a text for a formula by.
const formulaStarts = "=+-@\t\r"

var spreadColumns = []string{"clips_per_s", "audio_per_s", "step_s", "cpu_use", "gain", "cpu_gain"}

// csvColumns are those of a benchmark's table.
func csvColumns() []string {
	columns := []string{"what", "name", "value", "problem"}
	for _, column := range spreadColumns {
		columns = append(columns, column, column+"_low", column+"_high")
	}
	return append(columns, "padding", "gpu_use", "gpu_memory_bytes", "peak_bytes", "ram_bytes",
		"waiting", "forward", "backward", "optimizer", "other", "start_s", "again_s")
}

// csvRow holds cells by their columns; unknown values are empty.
type csvRow map[string]string

// Cell is a text in a table for spreadsheets, never a formula.
func Cell(text string) string {
	if text != "" && strings.ContainsRune(formulaStarts, rune(text[0])) {
		return "'" + text
	}
	return text
}

func (c csvRow) text(column, text string) { c[column] = Cell(text) }

func (c csvRow) number(column string, figure *float64) {
	if figure != nil {
		c[column] = strconv.FormatFloat(*figure, 'f', -1, 64)
	}
}

func (c csvRow) spread(column string, s *spreadOf) {
	if s != nil {
		c.number(column, &s.Median)
		c.number(column+"_low", &s.Low)
		c.number(column+"_high", &s.High)
	}
}

// benchmarkCSV is a row for each side, way to load, change, and for the speed-up.
func benchmarkCSV(r benchmarkRecord) (string, error) {
	var rows []csvRow
	for _, s := range r.sides() {
		row := csvRow{"what": "side"}
		row.text("name", s.Name)
		row.side(s)
		rows = append(rows, row)
	}
	for _, l := range r.Loader {
		row := csvRow{"what": "loader", "name": strconv.Itoa(l.Workers) + " workers"}
		if l.Prefetch != nil {
			row["value"] = strconv.Itoa(*l.Prefetch)
		}
		row.spread("clips_per_s", &l.ClipsPerS)
		row.spread("audio_per_s", l.AudioPerS)
		row.number("start_s", &l.StartS)
		row.number("again_s", &l.AgainS)
		rows = append(rows, row)
	}
	for _, o := range r.Options {
		rows = append(rows, o.csv())
	}
	if r.Speedup != nil {
		row := csvRow{"what": "speedup"}
		row.spread("gain", r.Speedup)
		row.spread("cpu_gain", r.CPUSpeedup)
		rows = append(rows, row)
	}
	return written(csvColumns(), rows)
}

func (c csvRow) side(s side) {
	c.text("problem", s.Problem)
	for column, s := range map[string]*spreadOf{"clips_per_s": s.ClipsPerS,
		"audio_per_s": s.AudioPerS, "step_s": s.StepS, "cpu_use": s.CPUUse} {
		c.spread(column, s)
	}
	for column, figure := range map[string]*float64{"padding": s.Padding,
		"gpu_use": s.Readings.GPUUse, "gpu_memory_bytes": s.Readings.GPUMemory,
		"peak_bytes": s.Peak, "ram_bytes": s.Readings.RAM} {
		c.number(column, figure)
	}
	for part, share := range s.Shares {
		c.number(part, &share)
	}
}

func (o option) csv() csvRow {
	row := csvRow{"what": "option"}
	if o.Side != nil {
		row.side(*o.Side)
	}
	row.text("name", o.Option)
	row.text("value", o.Value)
	row.text("problem", cmp.Or(o.Problem, o.WhyNot))
	row.spread("gain", o.Gain)
	row.spread("cpu_gain", o.CPUGain)
	return row
}

func written(columns []string, rows []csvRow) (string, error) {
	var out strings.Builder
	w := csv.NewWriter(&out)
	lines := [][]string{columns}
	for _, r := range rows {
		line := make([]string, len(columns))
		for i, column := range columns {
			line[i] = r[column]
		}
		lines = append(lines, line)
	}
	err := w.WriteAll(lines)
	return out.String(), err
}
