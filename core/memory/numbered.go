package memory

// numbered lists different values in the order in which they came. The zero value is empty.
type numbered[T comparable] struct {
	values  []T         // what is changed here is still known as it came
	numbers map[T]int32 // by value
}

// of is the place of a value in the list, at the end of which a new one goes.
func (n *numbered[T]) of(value T) int32 {
	number, ok := n.numbers[value]
	if !ok {
		if n.numbers == nil {
			n.numbers = map[T]int32{}
		}
		number = int32(len(n.values))
		n.numbers[value], n.values = number, append(n.values, value)
	}
	return number
}
