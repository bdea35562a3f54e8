/** A verify report in words. */
import type { VerifyReport } from '../engine/verify.js'
import { count } from './progress.js'

export function formatReport(directory: string, report: VerifyReport): string {
  const lines = report.problems.map(({ path, offset, message }) => {
    const where = offset === undefined ? (path ?? directory) : `${path} at byte ${count(offset)}`
    return `damaged: ${where}: ${message}`
  })
  const { jobs } = report
  const read = `${count(report.files)} files, ${count(report.bytes)} bytes`
  const holds = `${count(jobs.ready + jobs.leased)} ready, ${count(jobs.delayed)} delayed, ${count(jobs.dead)} dead, ${count(report.seen)} seen`
  if (report.ok) lines.push(`${directory} is sound: ${read}; ${holds}.`)
  else lines.push(`${directory} is damaged (${read} read). holdfast repair ${directory} NEW saves what can be read.`)
  return `${lines.join('\n')}\n`
}
