package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// gpus is a row for each, with a meter of the peak in the total; of a single one a line for each
// figure.
func (r runRecord) gpus() section {
	t := table{Head: []string{"GPU", "name", "busy", "memory, peak", "allocated", "reserved",
		"headroom, lowest", "power", "energy", "hottest", "held back by", "others' memory"},
		Skip: map[int]bool{1: true, 4: true, 5: true, 10: true, 11: true}}
	for _, g := range r.GPUs {
		cells := g.cells()
		cells[3].Meter = filled(g.UsedPeak, g.Total)
		t.Rows = append(t.Rows, row{Cells: cells})
	}
	if len(t.Rows) != 1 {
		return section{Title: "GPUs", Body: []Block{t}}
	}
	var lines pairs
	for i, c := range t.Rows[0].Cells[1:] {
		lines = append(lines, [2]string{t.Head[i+1], c.Text})
	}
	return section{Title: "GPU", Body: []Block{lines}}
}

func (g GPUFigures) cells() []cell {
	var throttles []string
	for _, reason := range sortedKeys(g.Throttled) {
		throttles = append(throttles, reason+" "+units.Percent(g.Throttled[reason]))
	}
	return cellsOf(g.Label, name(g.Name), known(g.Utilization, units.Percent), known(g.UsedPeak, size)+
		" of "+known(g.Total, size), known(g.Allocated, size), known(g.Reserved, size),
		known(g.Headroom, size), known(g.Power, amount("W")), known(g.EnergyWh, energy),
		known(g.Hottest, amount("°C")), cmp.Or(strings.Join(throttles, ", "), unknown),
		known(g.Others, size))
}

func (r runRecord) hosts() pairs {
	var rows pairs
	for _, h := range r.Hosts {
		limit := ""
		if h.Contained {
			limit = ", the container's limit"
		}
		for _, pair := range [][2]string{
			{"RAM", fmt.Sprintf("%s at the peak of %s%s", known(h.UsedPeak, size),
				known(h.Total, size), limit)},
			{"available, lowest", known(h.Available, size)},
			{"this training", fmt.Sprintf("%s, its loader workers %s", known(h.Tree, size),
				known(h.Workers, size))},
			{"/dev/shm", fmt.Sprintf("%s at the peak of %s", known(h.SharedPeak, size),
				known(h.SharedTotal, size))},
			{"swap", known(h.Swap, size) + " at the peak"},
			{"processors", fmt.Sprintf("%s of %d, this training %s, the busiest core %s",
				known(h.CPU, units.Percent), h.CPUs, known(h.TreeCPU, units.Percent),
				known(h.BusiestCore, units.Percent))},
			{"disk", fmt.Sprintf("read %s, written %s", known(h.DiskRead, units.Rate),
				known(h.DiskWritten, units.Rate))},
			{"network", fmt.Sprintf("received %s, sent %s", known(h.NetReceived, units.Rate),
				known(h.NetSent, units.Rate))},
		} {
			if h.Label != "" {
				pair[0] = h.Label + ": " + pair[0]
			}
			rows = append(rows, pair)
		}
	}
	return rows
}
