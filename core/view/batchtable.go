package view

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// batchTableRecord is the memory of micro-batches of several lengths and sizes.
type batchTableRecord struct {
	Model    string        `json:"model"`
	Settings string        `json:"settings_words"`
	RowKind  units.RowKind `json:"row_kind"`
	Target   target        `json:"target"`
	Batches  []int         `json:"batches"`
	Rows     []batchRow    `json:"rows"`
}

// batchRow is of the batches whose longest clip has these seconds.
type batchRow struct {
	Seconds float64 `json:"seconds"`
	Largest *int    `json:"largest_batch"` // that fits; absent without a GPU
	// of each batch, in bytes; null where the trace does not determine it, and beyond the first
	// that does not fit
	Peaks []*float64 `json:"peaks"`
}

const noFit = "✗"

func batchTable(r batchTableRecord) Document {
	head := []string{"longest, " + r.RowKind.Unit()}
	for _, batch := range r.Batches {
		head = append(head, fmt.Sprintf("× %d", batch))
	}
	rows := [][]string{append(head, "largest")}
	for _, row := range r.Rows {
		rows = append(rows, r.cells(row))
	}
	return Document{
		Title:      fmt.Sprintf("%s, %s", name(cmp.Or(r.Model, "model")), r.Settings),
		Blocks:     []Block{allFacts(r.meaning()), plain(rows)},
		BriefWidth: terminalWidth,
	}
}

func (r batchTableRecord) meaning() string {
	if r.Target.Name == "" {
		return "reserved memory at the peak in GiB; name a GPU (--gpu L4) to see which fit"
	}
	return fmt.Sprintf("memory at the peak in GiB; %s does not fit %s (%s)", noFit,
		name(r.Target.Name), known(r.Target.Available, units.Size))
}

func (r batchTableRecord) cells(row batchRow) []string {
	cells := []string{r.RowKind.Figure("%.6g", row.Seconds)}
	for i, peak := range row.Peaks {
		text := known(peak, func(bytes float64) string {
			return fmt.Sprintf("%.1f", bytes/units.GiB)
		})
		if row.Largest != nil && r.Batches[i] > *row.Largest {
			text = noFit
			if peak != nil {
				text = fmt.Sprintf("%.1f %s", *peak/units.GiB, noFit)
			}
		}
		cells = append(cells, text)
	}
	return append(cells, known(row.Largest, strconv.Itoa))
}
