package view

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/units"
)

func hardware(h profile.Hardware) Document {
	return Document{Title: "Hardware", Untitled: true,
		Blocks: []Block{allFacts(hardwareLines(h)...)}, Brief: []Block{allFacts(machineLine(h))}}
}

func hardwareLines(h profile.Hardware) []string {
	var lines []string
	for _, g := range h.GPUs {
		free := " (from the catalogue)"
		if g.MemoryFreeBytes != nil {
			free = fmt.Sprintf(", %s free", units.InGiB(*g.MemoryFreeBytes))
		}
		lines = append(lines, fmt.Sprintf("GPU %d: %s, %s, compute capability %s%s", g.Index,
			name(g.Name), units.InGiB(g.MemoryTotalBytes), g.ComputeCapability, free))
	}
	if len(lines) == 0 {
		lines = []string{fmt.Sprintf("no GPU (%s)", h.NoGPUReason)}
	}
	if h.OrderNote != "" {
		lines = append(lines, h.OrderNote)
	}
	if driver := profile.Or(h.DriverVersion, ""); driver != "" {
		lines = append(lines, fmt.Sprintf("driver %s, CUDA up to %s", driver,
			profile.Or(h.CUDAVersion, "unknown")))
	}
	return append(lines, hostLine(h))
}

// machineLine is "2 × Tesla T4, 15.0 GiB; CPU 2 cores, RAM 20.3 GiB available of 23.5 GiB".
func machineLine(h profile.Hardware) string {
	if len(h.GPUs) == 0 {
		return hardwareLines(h)[0] + "; " + hostLine(h)
	}
	var names []string
	for _, g := range h.GPUs {
		names = append(names, fmt.Sprintf("%s, %s", name(g.Name),
			units.InGiB(g.MemoryTotalBytes)))
	}
	return several(names) + "; " + hostLine(h)
}

func hostLine(h profile.Hardware) string {
	cores := fmt.Sprintf("%d cores", h.CPU.LogicalCores)
	if h.CPU.LimitSource != "" {
		cores = fmt.Sprintf("%.6g of %s", h.CPU.UsableCores, cores)
	}
	limited := ""
	if h.Memory.LimitSource != "" {
		limited = fmt.Sprintf(" (limited by %s)", h.Memory.LimitSource)
	}
	return fmt.Sprintf("CPU %s, RAM %s available of %s%s", cores,
		units.InGiB(h.Memory.AvailableBytes), units.InGiB(h.Memory.TotalBytes), limited)
}

// modelRecord is a profile whose counts may be made by hand.
type modelRecord struct {
	Name                string             `json:"name"`
	Architecture        string             `json:"architecture"`
	ClassName           string             `json:"class_name"`
	TotalParameters     float64            `json:"total_parameters"`
	TrainableParameters *float64           `json:"trainable_parameters"`
	ParameterBytes      *float64           `json:"parameter_bytes"`
	GradientBytes       *float64           `json:"gradient_bytes"`
	OptimizerBytes      map[string]float64 `json:"optimizer_bytes"`
}

func model(m modelRecord) Document {
	lines := modelLines(m)
	return Document{Title: "Model", Untitled: true, Blocks: []Block{allFacts(lines...)},
		Brief: []Block{allFacts(lines[0])}}
}

func modelLines(m modelRecord) []string {
	trainable := profile.Or(m.TrainableParameters, m.TotalParameters)
	lines := []string{fmt.Sprintf("%s: %s parameters", m.label(), parameters(m.TotalParameters))}
	if trainable != m.TotalParameters {
		lines[0] += fmt.Sprintf(", %s trainable", parameters(trainable))
	}
	if m.ParameterBytes == nil {
		return lines
	}
	var states []string
	for _, state := range sortedKeys(m.OptimizerBytes) {
		if bytes := m.OptimizerBytes[state]; bytes > 0 {
			states = append(states, fmt.Sprintf("%s %s", state, units.Size(bytes)))
		}
	}
	return append(lines, fmt.Sprintf("parameters %s, gradients %s, optimizer state: %s",
		known(m.ParameterBytes, units.Size), known(m.GradientBytes, units.Size),
		strings.Join(states, ", ")))
}

// parameters is "315.5 M", "8.2 k", "0".
func parameters(n float64) string {
	switch {
	case n >= 1e5:
		return fmt.Sprintf("%.1f M", n/1e6)
	case n >= 1000:
		return fmt.Sprintf("%.1f k", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

func (m modelRecord) label() string {
	if m.Name != "" && m.ClassName != "" {
		return fmt.Sprintf("%s (%s)", name(m.Name), name(m.ClassName))
	}
	return name(cmp.Or(m.Name, m.ClassName, m.Architecture, "model"))
}

// box is lines of text under a title, as they are.
type boxRecord struct {
	Title string   `json:"title"`
	Lines []string `json:"lines"`
}

func boxed(b boxRecord) Document {
	return Document{Title: b.Title, Untitled: true, Blocks: []Block{preformatted(b.Lines)}}
}
