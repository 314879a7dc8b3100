package allocator

import (
	"math/bits"
	"strconv"
)

// readDivisions reads roundup_power2_divisions: one power of two for all sizes, or a list of
// "MB:divisions" with powers of two of MB, where ">" stands for everything above the last one. The
// first entry counts for all sizes below it too; sizes between two entries of the list that are not
// named get none.
func readDivisions(s *Settings, v value) error {
	s.RoundupPower2Divisions = [divisionIntervals]uint64{}
	if v.list {
		return readDivisionList(s, v)
	}
	divisions, ok := powerOfTwo(v.word())
	if !ok {
		return v.wrong("a power of two, or a list such as [256:1,512:2,>:8]")
	}
	for i := range s.RoundupPower2Divisions {
		s.RoundupPower2Divisions[i] = divisions
	}
	return nil
}

func readDivisionList(s *Settings, v value) error {
	wrong := v.wrong("a list such as [256:1,512:2,>:8], of powers of two; divisions may be 0")
	table, last, first := &s.RoundupPower2Divisions, 0, true
	for i := 0; i < len(v.words); i += 4 {
		if len(v.words) < i+3 || v.words[i+1] != ":" ||
			(len(v.words) > i+3 && v.words[i+3] != ",") {
			return wrong
		}
		divisions, ok := powerOfTwo(v.words[i+2])
		if !ok && v.words[i+2] != "0" {
			return wrong
		}
		if v.words[i] == ">" {
			fill(table[last+1:], divisions)
			continue
		}
		boundary, ok := powerOfTwo(v.words[i])
		if !ok {
			return wrong
		}
		last = min(bits.Len64(boundary)-1, divisionIntervals-1)
		if first {
			fill(table[:last], divisions)
		}
		table[last], first = divisions, false
	}
	return nil
}

func fill(table []uint64, divisions uint64) {
	for i := range table {
		table[i] = divisions
	}
}

func powerOfTwo(word string) (uint64, bool) {
	number, err := strconv.ParseUint(word, 10, 64)
	return number, err == nil && bits.OnesCount64(number) == 1
}
