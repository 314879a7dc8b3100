package hardware

import (
	"slices"
	"strconv"
	"strings"
)

// How CUDA reads CUDA_VISIBLE_DEVICES, after the CUDA programming guide and PyTorch's reader of it
// (torch/cuda/__init__.py, which was fitted to the driver's behaviour):
//
//   - entries are separated by commas; the first entry decides whether they are indices, "GPU-" or "MIG-" identifiers;
//   - an index is what strtoul makes of the text, so "1abc" is 1; an identifier may be cut short while it stays unique;
//   - the list ends at the first entry that is negative, of another kind, unknown or ambiguous;
//   - a repeated entry hides everything.
//
// MIG (NVIDIA's MIG user guide, "CUDA device enumeration"): a process sees one MIG device at most, the first selected,
// and no whole GPU beside it.
//
// Indices count in NVML's order, which may not be CUDA's where GPUs differ (deviceorder.go).

// selection is CUDA_VISIBLE_DEVICES taken apart: indices, or prefixes of identifiers.
type selection struct {
	indices []int
	boards  []string // prefixes of board UUIDs, "GPU-8d…"
	migs    []string // prefixes of MIG UUIDs, "MIG-5f…" or, before R470, "MIG-GPU-8d…/7/0"
}

// parseVisible reads the variable. Anything unreadable ends the list; it never fails.
func parseVisible(setting string) selection {
	switch {
	case strings.HasPrefix(setting, "GPU-"):
		return selection{boards: identifiers(setting, "GPU-")}
	case strings.HasPrefix(setting, "MIG-"):
		return selection{migs: identifiers(setting, "MIG-")}
	default:
		return selection{indices: indices(setting)}
	}
}

func identifiers(setting, kind string) []string {
	var found []string
	for entry := range strings.SplitSeq(setting, ",") {
		if slices.Contains(found, entry) {
			return nil
		}
		if !strings.HasPrefix(entry, kind) || len(found) == maxBoards {
			break
		}
		found = append(found, entry)
	}
	return found
}

func indices(setting string) []int {
	var found []int
	for entry := range strings.SplitSeq(setting, ",") {
		index, ok := leadingNumber(strings.TrimSpace(entry))
		if !ok || len(found) == maxBoards {
			break
		}
		if slices.Contains(found, index) {
			return nil
		}
		found = append(found, index)
	}
	return found
}

// leadingNumber is strtoul for what matters here: an optional sign and decimal digits, the rest ignored.
// Negative, absent and overflowing numbers are not ok.
func leadingNumber(text string) (int, bool) {
	text = strings.TrimPrefix(text, "+")
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	number, err := strconv.ParseUint(text[:end], 10, 31)
	return int(number), err == nil
}

// selectUnits gives what CUDA would enumerate, in its order. trouble is the first error of a selected board that cannot
// be used; such a board is left out.
func selectUnits(boards []board, setting *string) (units []unit, trouble string) {
	chosen := boards
	if setting != nil {
		choice := parseVisible(*setting)
		if choice.migs != nil {
			return selectMIG(boards, choice.migs), ""
		}
		chosen = selectBoards(boards, choice)
	}
	for _, b := range chosen {
		switch {
		case b.err != nil:
			if trouble == "" {
				trouble = b.err.Error()
			}
		case b.migMode:
			units = append(units, b.slices...)
		default:
			units = append(units, b.unit)
		}
	}
	return oneMIG(units), trouble
}

func selectBoards(boards []board, choice selection) []board {
	var picked []int
	for _, index := range choice.indices {
		if index >= len(boards) {
			break
		}
		picked = append(picked, index)
	}
	for _, prefix := range choice.boards {
		index := uniquePrefix(len(boards), prefix, func(i int) string { return boards[i].uuid })
		if index < 0 {
			break
		}
		if slices.Contains(picked, index) { // two prefixes of one GPU are a repetition too
			return nil
		}
		picked = append(picked, index)
	}
	chosen := make([]board, len(picked))
	for i, index := range picked {
		chosen[i] = boards[index]
	}
	return chosen
}

// selectMIG resolves the first identifier only: CUDA shows one MIG device, and an unknown one ends the list.
func selectMIG(boards []board, prefixes []string) []unit {
	var all []unit
	for _, b := range boards {
		all = append(all, b.slices...)
	}
	index := uniquePrefix(len(all), prefixes[0], func(i int) string { return all[i].uuid })
	if index < 0 {
		return nil
	}
	return all[index : index+1]
}

// uniquePrefix is the place of the one identifier that starts with prefix; -1 when none or several do.
func uniquePrefix(count int, prefix string, identifier func(int) string) int {
	found := -1
	for i := range count {
		if !strings.HasPrefix(identifier(i), prefix) {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

// oneMIG applies the rule that a MIG device is enumerated alone.
func oneMIG(units []unit) []unit {
	for i, u := range units {
		if u.mig {
			return units[i : i+1]
		}
	}
	return units
}
