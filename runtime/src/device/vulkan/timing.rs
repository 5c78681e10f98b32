//! Runs with a timestamp after every dispatch, for benchmarks and traces.
//!
//! A dispatch without a barrier may overlap the previous dispatch. The measured time is then the additional time that
//! the dispatch takes.

use super::context::Context;
use super::failed;
use super::pipelines::Pipelines;
use super::record::{Commands, Indirect, Sets, record_function};
use crate::error::{Error, Result};
use crate::format::Function;
use ash::vk;
use std::sync::Arc;

pub(super) struct Timed {
    context: Arc<Context>,
    queries: vk::QueryPool,
    n_queries: usize,
    command: vk::CommandBuffer,
}

impl Timed {
    pub(super) fn record(
        context: &Arc<Context>,
        commands: &Commands,
        function: &Function,
        pipelines: &Pipelines,
        sets: &Sets,
        indirect: &Indirect<'_>,
    ) -> Result<Timed> {
        if context.timestamp_bits == 0 {
            return Err(Error::NoTimestamps);
        }
        let n_queries = function.dispatches.len() + 1;
        let count = u32::try_from(n_queries).map_err(|_| Error::NoTimestamps)?;
        let create =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(count);
        // SAFETY: the device is live.
        let queries =
            unsafe { context.device.create_query_pool(&create) }.map_err(failed("vkCreateQueryPool"))?;
        let mut timed =
            Timed { context: context.clone(), queries, n_queries, command: vk::CommandBuffer::null() };
        timed.command = commands.allocate()?;
        commands.record(timed.command, vk::CommandBufferUsageFlags::empty(), |command| {
            // SAFETY: the command buffer is being recorded; the queries exist.
            unsafe {
                context.device.cmd_reset_query_pool(command, queries, count);
                context.device.cmd_write_timestamp(command, queries, 0);
            }
            record_function(context, command, function, pipelines, sets, indirect, |index| {
                let query = u32::try_from(index + 1).unwrap_or(0);
                // SAFETY: as above; each query is written once.
                unsafe { context.device.cmd_write_timestamp(command, queries, query) };
            });
        })?;
        Ok(timed)
    }

    /// Returns nanoseconds from the start of the run to the end of each dispatch.
    pub(super) fn run(&self, commands: &Commands) -> Result<Vec<f64>> {
        self.context.submit(&[self.command], commands.fence)?;
        let mut ticks = vec![0u64; self.n_queries];
        // SAFETY: the run has written every query.
        unsafe { self.context.device.get_query_pool_results(self.queries, &mut ticks) }
            .map_err(failed("vkGetQueryPoolResults"))?;
        // Counters of fewer than 64 bits wrap around.
        let mask = u64::MAX >> (64 - self.context.timestamp_bits.clamp(1, 64));
        let start = ticks.first().copied().unwrap_or(0);
        let period = f64::from(self.context.info.timestamp_period);
        let since_start = |tick: &u64| (tick.wrapping_sub(start) & mask) as f64 * period;
        Ok(ticks.iter().skip(1).map(since_start).collect())
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        // SAFETY: every run was waited for.
        unsafe { self.context.device.destroy_query_pool(self.queries) };
    }
}
