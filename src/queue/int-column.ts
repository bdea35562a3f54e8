/** A list of 32-bit integers that grows: what a hundred thousand of make is one array outside the heap, not as many objects. */
const LENGTH_MIN = 16

export class IntColumn {
  length = 0
  private words = new Int32Array(LENGTH_MIN)

  at(index: number): number {
    return this.words[index]
  }

  set(index: number, value: number): void {
    this.words[index] = value
  }

  push(value: number): void {
    if (this.length === this.words.length) {
      const words = new Int32Array(this.length * 2)
      words.set(this.words)
      this.words = words
    }
    this.words[this.length++] = value
  }
}
