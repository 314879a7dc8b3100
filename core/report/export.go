package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"math"
	"strconv"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/view"
)

// Export writes what the monitors of a run saw, for other programs: "csv", "jsonl" or "chrome". Errors: Corrupt, InvalidArgument.
func Export(sources []Source, format string) ([]byte, error) {
	start, err := placed(sources)
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
	return nil, fault.New(fault.InvalidArgument, "choose csv, jsonl or chrome", "exporting a run: there is no format %q", fault.Shorten(format))
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

// appendNumber writes every digit of a number, nothing of one that is not known; numbers without a fraction have no point.
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
		head := object("series", "run", "source", cmp.Or(sources[i].Name, "first"), "start_unix_s", float64(log.StartUnixNanos)/1e9,
			"duration_s", log.DurationS, "interval_s", log.IntervalS, "samples", log.Samples, "errors", log.Errors, "gpus", log.GPUs, "host", log.Host)
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

// object is a JSON object of names and values by turns, without those that are not known. A value of bytes is JSON.
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
