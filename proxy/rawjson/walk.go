package rawjson

import "iter"

// Kind tells the type of a raw value by its first byte: '{', '[', '"', 't', 'f'
// or 'n', '0' for any number, and 0 for what is no JSON value.
func Kind(raw []byte) byte {
	i := skipSpace(raw, 0)
	if i >= len(raw) {
		return 0
	}
	switch c := raw[i]; c {
	case '{', '[', '"', 't', 'f', 'n':
		return c
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return '0'
	}
	return 0
}

// Elements iterates over the raw values of an array, and over nothing if it is
// not one. The values are found as they are asked for.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		i := skipSpace(array, 0)
		if i >= len(array) || array[i] != '[' {
			return
		}
		i = skipSpace(array, i+1)
		for i < len(array) && array[i] != ']' {
			end := skipValue(array, i)
			if end == i || !yield(array[i:end:end]) {
				return
			}
			i = skipSeparator(array, end, ',')
		}
	}
}

// Ints iterates over the elements of an array as [Int] reads them, and over nothing
// if it is not one.
func Ints(array []byte) iter.Seq2[int64, bool] {
	return func(yield func(n int64, ok bool) bool) {
		i := skipSpace(array, 0)
		if i >= len(array) || array[i] != '[' {
			return
		}
		i = skipSpace(array, i+1)
		for i < len(array) && array[i] != ']' {
			end, n, ok := i, int64(0), true
			for end < len(array) && array[end]-'0' <= 9 {
				n = n*10 + int64(array[end]-'0')
				end++
			}
			if !fewDigits(array[i:end]) || end < len(array) && array[end] != ',' && array[end] != ']' {
				end = skipValue(array, i)
				n, ok = Int(array[i:end])
			}
			if end == i || !yield(n, ok) {
				return
			}
			i = skipSeparator(array, end, ',')
		}
	}
}

// Map returns an array with edit's result in the place of each element and
// every other byte as it was; what is no array is returned as it is.
func Map(array []byte, edit func(element []byte) []byte) []byte {
	i := skipSpace(array, 0)
	if i >= len(array) || array[i] != '[' {
		return array
	}
	mapped := make([]byte, 0, len(array))
	from := 0
	i = skipSpace(array, i+1)
	for i < len(array) && array[i] != ']' {
		end := skipValue(array, i)
		if end == i {
			break
		}
		mapped = append(append(mapped, array[from:i]...), edit(array[i:end:end])...)
		from = end
		i = skipSeparator(array, end, ',')
	}
	return append(mapped, array[from:]...)
}

// Fields iterates over the names, unescaped, and the raw values of an object,
// in order and duplicates included, and over nothing if it is not one. A name
// aliases the text unless it has escapes.
func Fields(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		i := skipSpace(object, 0)
		if i >= len(object) || object[i] != '{' {
			return
		}
		i = skipSpace(object, i+1)
		for i < len(object) && object[i] == '"' {
			key, keyEnd := skipName(object, i)
			start := skipSeparator(object, keyEnd, ':')
			end := skipValue(object, start)
			if end == start || !yield(key, object[start:end:end]) {
				return
			}
			i = skipSeparator(object, end, ',')
		}
	}
}

// Lookup returns the raw value of the first member of object named key, nil if
// there is none or object is not an object. It looks no further than that member.
func Lookup(object []byte, key string) []byte {
	for k, v := range Fields(object) {
		if string(k) == key {
			return v
		}
	}
	return nil
}
